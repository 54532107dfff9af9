// Package flatjson has values that consist of parts be one JSON object, without the parts showing.
// It is for types that say more than a struct should in one piece: encoding/json does so for parts
// that are embedded, which has all their fields be fields of the whole in Go, too. It is pure.
package flatjson

import (
	"encoding/json"
	"fmt"
)

// Marshal writes parts that are objects as one, in order.
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

// Unmarshal reads parts, which are pointers, from one object. Each takes what it knows.
func Unmarshal(text []byte, parts ...any) error {
	for _, part := range parts {
		if err := json.Unmarshal(text, part); err != nil {
			return err
		}
	}
	return nil
}
