package stats

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// The types of metrics.
const (
	counterType = "counter"
	gaugeType   = "gauge"
)

// exposition is a text of metrics in Prometheus' format. A scrape of a full node has thousands of
// lines, so they are written directly, without an intermediate model.
type exposition struct {
	text     []byte
	families sets.Set[string]
}

// family starts a metric; all its samples follow.
func (e *exposition) family(name, kind, help string) {
	e.text = append(e.text, "# HELP "...)
	e.text = append(e.text, name...)
	e.text = append(e.text, ' ')
	e.text = append(e.text, helpEscapes.Replace(help)...)
	e.text = append(e.text, "\n# TYPE "...)
	e.text = append(e.text, name...)
	e.text = append(e.text, ' ')
	e.text = append(e.text, kind...)
	e.text = append(e.text, '\n')
	if e.families == nil {
		e.families = sets.New[string]()
	}
	e.families.Insert(name)
}

// point is one line of a family.
type point struct {
	base, extra string // results of labels; either may be empty
	value       float64
	at          time.Time // zero: it is not written
}

// sample adds a line.
func (e *exposition) sample(name string, s point) {
	e.text = append(e.text, name...)
	if s.base != "" && s.extra != "" {
		e.text = append(e.text, s.base[:len(s.base)-1]...)
		e.text = append(e.text, ',')
		e.text = append(e.text, s.extra[1:]...)
	} else {
		e.text = append(append(e.text, s.base...), s.extra...)
	}
	e.text = append(e.text, ' ')
	if s.value == math.Trunc(s.value) && math.Abs(s.value) < 1<<53 {
		e.text = strconv.AppendInt(e.text, int64(s.value), 10)
	} else {
		e.text = strconv.AppendFloat(e.text, s.value, 'g', -1, 64)
	}
	if !s.at.IsZero() {
		e.text = append(e.text, ' ')
		e.text = strconv.AppendInt(e.text, s.at.UnixMilli(), 10)
	}
	e.text = append(e.text, '\n')
}

var (
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// labels formats alternating names and values in braces.
func labels(pairs ...string) string {
	if len(pairs) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		_, _ = valueEscapes.WriteString(&b, strings.ToValidUTF8(pairs[i+1], "\uFFFD"))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
