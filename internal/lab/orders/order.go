package orders

// AggregateType is the aggregatetype of every outbox row, and so the end of
// the topic's name: with the default route, outbox.event.order.
const AggregateType = "order"

// Status is how far an order has come.
type Status string

// The statuses, in the order of an order's life.
const (
	Placed  Status = "placed"
	Paid    Status = "paid"
	Shipped Status = "shipped"
)

// next returns the status following s, or "" for the last.
func (s Status) next() Status {
	switch s {
	case Placed:
		return Paid
	case Paid:
		return Shipped
	default:
		return ""
	}
}

// eventType is the type of the event for an order's step to s.
func (s Status) eventType() string {
	switch s {
	case Placed:
		return "OrderPlaced"
	case Paid:
		return "OrderPaid"
	default:
		return "OrderShipped"
	}
}

// Order is an order. Its JSON form is the payload of the events.
type Order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Total    int64  `json:"total"` // cents
	Status   Status `json:"status"`
}

// Change is a single transaction of the service: an order and its event.
type Change struct {
	// Order is the order as the transaction left it.
	Order Order
	// EventID is the outbox row's id, in Kafka the header id.
	EventID string
	// EventType is OrderPlaced, OrderPaid or OrderShipped.
	EventType string
	// RolledBack tells that the transaction wrote its two rows and was then rolled
	// back on purpose: the event must never arrive.
	RolledBack bool
}
