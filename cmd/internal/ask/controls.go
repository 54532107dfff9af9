package ask

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
)

// withoutControls returns the JSON with the control characters in its strings replaced, since a
// terminal would obey them, and an attacker who took over a node could send some.
func withoutControls(raw []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(harmless(value))
}

func harmless(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				return unicode.ReplacementChar
			}
			return r
		}, v)
	case []any:
		for i, one := range v {
			v[i] = harmless(one)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, one := range v {
			out[harmless(key).(string)] = harmless(one)
		}
		return out
	}
	return value
}
