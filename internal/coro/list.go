package coro

// list is a linked list with removal in constant time. The values have their links themselves, so
// the list allocates nothing.
type list[T placed[T]] struct{ head, tail T }

// placed is a pointer to a value that is in one list at most.
type placed[T any] interface {
	comparable
	at() *place[T]
}

type place[T any] struct{ before, behind T }

func (p *place[T]) at() *place[T] { return p }

func (l *list[T]) push(v T) {
	var none T
	if l.tail == none {
		l.head = v
	} else {
		v.at().before, l.tail.at().behind = l.tail, v
	}
	l.tail = v
}

func (l *list[T]) remove(v T) {
	var none T
	p := v.at()
	if p.before == none {
		l.head = p.behind
	} else {
		p.before.at().behind = p.behind
	}
	if p.behind == none {
		l.tail = p.before
	} else {
		p.behind.at().before = p.before
	}
	*p = place[T]{}
}

// all yields the values of the list, oldest first. The list must not change meanwhile.
func (l *list[T]) all(yield func(T) bool) {
	var none T
	for v := l.head; v != none; v = v.at().behind {
		if !yield(v) {
			return
		}
	}
}
