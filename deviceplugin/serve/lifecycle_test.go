package serve

import (
	"maps"
	"testing"
)

// The agent is told only of the devices that it asks about and that have a text.
func TestTexts(t *testing.T) {
	all := Texts(func() map[string]string { return map[string]string{"a": "x", "b": "", "c": "z"} })
	if got := all.of([]string{"a", "b", "d"}); !maps.Equal(got, map[string]string{"a": "x"}) {
		t.Errorf("it answers %v", got)
	}
}
