// Package quantity reads quantities that others wrote. resource.ParseQuantity takes ten bytes such as
// 1e1000000000, and whoever adds, compares or prints such a number writes out its digits. It is pure.
package quantity

import (
	"errors"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// maxText is the most bytes of a quantity, and maxExponent its largest power of ten, which is
	// far beyond what any resource can be counted in.
	maxText, maxExponent = 64, 99
	// maxPage is the most bytes of a page: more than all memory that there is.
	maxPage = 1 << 50
)

var (
	errLong     = errors.New("has more than 64 characters")
	errExponent = errors.New("has an exponent that is not between -99 and 99")
)

// Parse is resource.ParseQuantity of texts that are worth to be counted with.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// Check says what makes a text more than a number to count with, before it is read as one. The error
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
	n, err := strconv.Atoi(text[at+1:]) // of 1E, which is a suffix, there is none
	if errors.Is(err, strconv.ErrRange) || err == nil && (n > maxExponent || n < -maxExponent) {
		return errExponent
	}
	return nil // what is no number is ParseQuantity's to refuse
}

// PageSize is the page size in bytes of a resource such as hugepages-2Mi. It is not ok for other
// resources, and for sizes that no page has.
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
