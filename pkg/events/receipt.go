package events

import "time"

// Receipt says which message a fact has taken in, and when that was sent.
type Receipt struct {
	Message string
	Sent    time.Time
}

// ReceiptOf gives the receipt in an event. It reports false for events that no message with an id
// has brought.
func ReceiptOf(e Event) (Receipt, bool) {
	var message string
	var age int64
	switch f := e.Fact.(type) {
	case *Started:
		message, age = f.Message, f.Age
	case *EventReceived:
		message, age = f.Message, f.Age
	case *MessageReceived:
		message, age = f.Message, f.Age
	case *CancelRequested:
		message, age = f.Message, f.Age
	case *Suspended:
		message, age = f.Message, f.Age
	case *Resumed:
		message, age = f.Message, f.Age
	case *Terminated:
		message, age = f.Message, f.Age
	default:
	}
	return Receipt{message, e.At.Add(-time.Duration(age) * time.Microsecond)}, message != ""
}

// AgeOf is how an event tells when the message was sent that it took in: in microseconds before the
// event. It is negative where the sender's clock was ahead.
func AgeOf(sent, at time.Time) int64 { return Instant(at).Sub(Instant(sent)).Microseconds() }
