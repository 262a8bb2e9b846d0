package orders

// AggregateType is the aggregatetype of every outbox row, and so the end of
// the topic's name: with the default route, outbox.event.order.
const AggregateType = "order"

// Status is how far an order has come.
type Status string

// The statuses, in the order in which an order passes through them.
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

// eventType is the type of the event saying that an order reached s.
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

// Order is one order. Its JSON form is the payload of the events.
type Order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Total    int64  `json:"total"` // cents
	Status   Status `json:"status"`
}

// Change is a single transaction of the service: an order and the event about
// it.
type Change struct {
	// Order is the order as the transaction left it.
	Order Order
	// EventID is the outbox row's id, which arrives as the header id.
	EventID string
	// EventType is OrderPlaced, OrderPaid or OrderShipped.
	EventType string
	// RolledBack tells that the transaction wrote its two rows and was then rolled
	// back on purpose: the event must never arrive.
	RolledBack bool
}
