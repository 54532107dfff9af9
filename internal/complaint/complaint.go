// Package complaint has what is wrong reported when that begins, changes or ends, and not while it
// lasts.
package complaint

// Complaint holds what was last found to be wrong; the zero T stands for nothing, and the zero
// value is ready for use. It belongs to one goroutine.
type Complaint[T comparable] struct{ last T }

// Changes records what is wrong now, and reports whether that is new, or over.
func (c *Complaint[T]) Changes(now T) bool {
	before := c.last
	c.last = now
	return now != before
}

// Begins records what is wrong now, and reports whether that is new.
func (c *Complaint[T]) Begins(now T) bool {
	var nothing T
	return c.Changes(now) && now != nothing
}

// Lasts reports whether something is wrong.
func (c *Complaint[T]) Lasts() bool {
	var nothing T
	return c.last != nothing
}

// Of returns the text of an error, "" for none: errors are not always comparable.
func Of(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
