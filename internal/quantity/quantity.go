// Package quantity reads untrusted quantities. resource.ParseQuantity accepts ten bytes such as
// 1e1000000000, and adding, comparing or printing such a number writes out its digits. The package is
// pure.
package quantity

import (
	"errors"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// maxText bounds a quantity in bytes, maxExponent its power of ten, far beyond any countable
	// resource.
	maxText, maxExponent = 64, 99
	// maxPage bounds a page in bytes: more than all memory that exists.
	maxPage = 1 << 50
)

var (
	errLong     = errors.New("has more than 64 characters")
	errExponent = errors.New("has an exponent that is not between -99 and 99")
)

// Parse is resource.ParseQuantity for texts that pass Check.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check refuses texts that would be too expensive as numbers, before they are parsed. The error
// begins with a verb.
func Check(text string) error {
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		return errLong
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return nil
	}
	n, err := strconv.Atoi(text[at+1:]) // 1E is a suffix, without an exponent
	if errors.Is(err, strconv.ErrRange) || err == nil && (n > maxExponent || n < -maxExponent) {
		return errExponent
	}
	return nil // ParseQuantity refuses what is no number
}

// PageSize returns the page size in bytes of a resource such as hugepages-2Mi; ok is false for
// other resources and for sizes that no page has.
func PageSize(name v1.ResourceName) (bytes int64, ok bool) {
	text, huge := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !huge {
		return 0, false
	}
	size, err := Parse(text)
	most := resource.NewQuantity(maxPage, resource.BinarySI)
	if err != nil || size.Sign() <= 0 || size.Cmp(*most) > 0 {
		return 0, false
	}
	bytes = size.Value()
	whole := size.Cmp(*resource.NewQuantity(bytes, resource.BinarySI)) == 0
	return bytes, whole
}
