package flatjson_test

import (
	"encoding/json"
	"testing"

	"github.com/numalet/numalet/internal/flatjson"
)

type name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"`
}

type size struct {
	Size int `json:"size,omitempty"`
}

type thing struct {
	name  name
	first size
	rest  map[string]int
}

func (t thing) MarshalJSON() ([]byte, error) { return flatjson.Marshal(t.first, t.name, t.rest) }

func (t *thing) UnmarshalJSON(text []byte) error {
	return flatjson.Unmarshal(text, &t.first, &t.name)
}

// The object equals that of embedded parts, also within other values, with an empty part and with
// characters that HTML escapes; and it can be read again.
func TestFlat(t *testing.T) {
	for want, of := range map[string]thing{
		`[{"size":1,"namespace":"a","name":"b\u003c","x":2}]`: {
			name{"a", "b<"}, size{1}, map[string]int{"x": 2},
		},
		`[{"namespace":""}]`:   {rest: map[string]int{}},
		`[{"namespace":"{}"}]`: {name: name{Namespace: "{}"}, rest: map[string]int{}},
	} {
		text, err := json.Marshal([]thing{of})
		if err != nil || string(text) != want {
			t.Errorf("%+v became %s, %v; want %s", of, text, err, want)
		}
		var back []thing
		if err := json.Unmarshal(text, &back); err != nil || len(back) != 1 ||
			back[0].name != of.name || back[0].first != of.first {
			t.Errorf("%s was read as %+v, %v", text, back, err)
		}
	}
}

func TestNoObject(t *testing.T) {
	for _, part := range []any{1, []int{}, map[string]int(nil), make(chan int)} {
		if text, err := flatjson.Marshal(name{}, part); err == nil {
			t.Errorf("%T became %s", part, text)
		}
	}
	if err := flatjson.Unmarshal([]byte(`{"size":"x"}`), &name{}, &size{}); err == nil {
		t.Error("a size that is no number was read")
	}
}
