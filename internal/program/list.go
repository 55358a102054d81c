package program

// list is a linked list from which anything can be taken out at once, wherever it stands.
type list[T any] struct{ head, tail *link[T] }

type link[T any] struct {
	value      T
	prev, next *link[T]
}

func (l *list[T]) push(v T) *link[T] {
	n := &link[T]{value: v, prev: l.tail}
	if l.tail != nil {
		l.tail.next = n
	} else {
		l.head = n
	}
	l.tail = n
	return n
}

func (l *list[T]) remove(n *link[T]) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.head = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.tail = n.prev
	}
}

// all gives the values, oldest first. The list must not change meanwhile.
func (l *list[T]) all(yield func(T) bool) {
	for n := l.head; n != nil; n = n.next {
		if !yield(n.value) {
			return
		}
	}
}
