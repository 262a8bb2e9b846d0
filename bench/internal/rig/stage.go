package rig

import "context"

// Stage is a server of PostgreSQL, a broker and the connector.
type Stage struct {
	DB        *Database
	Broker    *Broker
	Connector *Connector
}

// Open starts a stage: the connector of the path, see NewConnector, PostgreSQL with the
// settings, and Apache Kafka or kfake. The caller must Close it.
func Open(ctx context.Context, binary string, settings map[string]string, kafka bool) (s *Stage, err error) {
	s = &Stage{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Connector, err = NewConnector(ctx, binary); err != nil {
		return s, err
	}
	if s.DB, err = StartDatabase(ctx, settings); err != nil {
		return s, err
	}
	s.Broker, err = StartBroker(ctx, kafka)
	return s, err
}

// Close ends the servers, and removes the connector if built for the stage.
func (s *Stage) Close() {
	if s.Broker != nil {
		s.Broker.Stop()
	}
	if s.DB != nil {
		s.DB.Close()
	}
	if s.Connector != nil {
		s.Connector.Remove()
	}
}
