package manifest

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// place is a field of a manifest under validation; its errors are collected in one list.
type place struct {
	path *field.Path
	errs *field.ErrorList
}

func (p place) child(name string, more ...string) place {
	return place{p.path.Child(name, more...), p.errs}
}

func (p place) index(i int) place { return place{p.path.Index(i), p.errs} }

func (p place) key(k string) place { return place{p.path.Key(k), p.errs} }

func (p place) add(errs ...*field.Error) { *p.errs = append(*p.errs, errs...) }

func (p place) invalid(value any, format string, args ...any) {
	p.add(field.Invalid(p.path, value, fmt.Sprintf(format, args...)))
}

func (p place) required(why string) { p.add(field.Required(p.path, why)) }

func (p place) forbid(why string) { p.add(field.Forbidden(p.path, why)) }

func (p place) duplicate(value any) { p.add(field.Duplicate(p.path, value)) }

func (p place) missing(value any) { p.add(field.NotFound(p.path, value)) }

func (p place) tooMany(have, most int) { p.add(field.TooMany(p.path, have, most)) }

// texts adds an error for each message about the value.
func (p place) texts(value string, messages []string) {
	for _, m := range messages {
		p.invalid(value, "%s", m)
	}
}

func (p place) between(value, low, high int64) {
	if value < low || value > high {
		p.invalid(value, "must be %d to %d", low, high)
	}
}

// named checks a name with the API's check. If it is missing, without says what to do.
func (p place) named(name string, check func(string) []string, without string) {
	if name == "" {
		p.required(without)
	} else {
		p.texts(name, check(name))
	}
}

func (p place) unsupported(value string, allowed []string) {
	p.add(field.NotSupported(p.path, value, allowed))
}

// oneOf checks a field that has a few possible values.
func oneOf[T ~string](at place, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		at.add(field.NotSupported(at.path, value, allowed))
	}
}
