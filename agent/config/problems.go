package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/topology/strictyaml"
)

// problems collects what is wrong. Each is at a field's path as users write it, such as
// "clusterDNS[1]", or at a flag.
type problems struct{ field.ErrorList }

func (p *problems) add(err *field.Error) { p.ErrorList = append(p.ErrorList, err) }

// address wants the text to be an IP address.
func (p *problems) address(at, text string) {
	if net.ParseIP(text) == nil {
		p.invalid(at, text, "must be an IP address")
	}
}

func (p *problems) invalid(at string, value any, format string, args ...any) {
	p.add(field.Invalid(field.NewPath(at), value, fmt.Sprintf(format, args...)))
}

// forbid says why the field cannot be set, when that is so.
func (p *problems) forbid(when bool, at, why string) {
	if when {
		p.add(field.Forbidden(field.NewPath(at), why))
	}
}

func (p *problems) required(at, why string) { p.add(field.Required(field.NewPath(at), why)) }

func (p *problems) duplicate(at string, value any) {
	p.add(field.Duplicate(field.NewPath(at), value))
}

// choose reports whether the value is one of those known, as it must be.
func (p *problems) choose(at, value string, known ...string) bool {
	ok := slices.Contains(known, value)
	if !ok {
		p.add(field.NotSupported(field.NewPath(at), value, known))
	}
	return ok
}

// err has everything in one line, by field; it is nil when nothing is wrong.
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
