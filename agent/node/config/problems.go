package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/internal/strictyaml"
)

// problems collects errors. Each is at the path of a field as users write it, such as
// "clusterDNS[1]", or at a flag.
type problems struct{ field.ErrorList }

func (p *problems) add(err *field.Error) { p.ErrorList = append(p.ErrorList, err) }

// address reports a text that is not an IP address.
func (p *problems) address(at, text string) {
	if net.ParseIP(text) == nil {
		p.invalid(at, text, "must be an IP address")
	}
}

func (p *problems) invalid(at string, value any, format string, args ...any) {
	p.add(field.Invalid(field.NewPath(at), value, fmt.Sprintf(format, args...)))
}

// forbid reports that the field cannot be set, if when is true.
func (p *problems) forbid(when bool, at, why string) {
	if when {
		p.add(field.Forbidden(field.NewPath(at), why))
	}
}

func (p *problems) required(at, why string) { p.add(field.Required(field.NewPath(at), why)) }

func (p *problems) duplicate(at string, value any) {
	p.add(field.Duplicate(field.NewPath(at), value))
}

// choose reports whether the value is one of the known ones; if not, it adds an error.
func (p *problems) choose(at, value string, known ...string) bool {
	ok := slices.Contains(known, value)
	if !ok {
		p.add(field.NotSupported(field.NewPath(at), value, known))
	}
	return ok
}

// err joins all errors, by field, in one line; it is nil if there are none.
func (p *problems) err() error {
	if len(p.ErrorList) == 0 {
		return nil
	}
	slices.SortStableFunc(p.ErrorList, func(a, b *field.Error) int {
		return strings.Compare(a.Field, b.Field)
	})
	lines := make([]string, len(p.ErrorList))
	for i, err := range p.ErrorList {
		lines[i] = strictyaml.OneLine(err.Error())
	}
	return errors.New("invalid configuration: " + strings.Join(lines, "; "))
}
