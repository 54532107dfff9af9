// Package flatjson encodes values that consist of several parts as one flat JSON object. It is for
// types too large for one struct: encoding/json flattens embedded structs too, but embedding also
// makes their fields fields of the whole in Go. It is pure.
package flatjson

import (
	"encoding/json"
	"fmt"
)

// Marshal writes parts, which must be JSON objects, as one object, in order.
func Marshal(parts ...any) ([]byte, error) {
	out := []byte{'{'}
	for _, part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if len(text) < 2 || text[0] != '{' {
			return nil, fmt.Errorf("%T is no JSON object but %.20s", part, text)
		}
		fields := text[1 : len(text)-1]
		if len(out) > 1 && len(fields) > 0 {
			out = append(out, ',')
		}
		out = append(out, fields...)
	}
	return append(out, '}'), nil
}

// Unmarshal reads parts, which are pointers, from one object. Each takes the fields that it knows.
func Unmarshal(text []byte, parts ...any) error {
	for _, part := range parts {
		if err := json.Unmarshal(text, part); err != nil {
			return err
		}
	}
	return nil
}
