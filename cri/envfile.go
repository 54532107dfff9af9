package cri

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// MaxEnvFile bounds the length of a file of environment variables in bytes.
const MaxEnvFile = 64 << 10

// fileKey returns the value of a key in a file in one of the pod's volumes (KEP-3721).
func (o ContainerOptions) fileKey(ref *v1.FileKeySelector) (value string, is bool, err error) {
	if o.File == nil {
		return "", false, nil // the volumes do not exist yet
	}
	text, err := o.File(ref.VolumeName, ref.Path)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file: %w", err)
	}
	all, err := parseEnvFile(string(text))
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file: %s of volume %s: %w", ref.Path,
			ref.VolumeName, err)
	}
	if value, is = all[ref.Key]; !is && !ptr.Deref(ref.Optional, false) {
		err = fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, is, err
}

// parseEnvFile reads lines of the form NAME='value'. The value is everything between the quotes,
// line breaks too. Blank lines and lines that start with # are skipped. If a name occurs twice, the
// last value counts.
func parseEnvFile(text string) (map[string]string, error) {
	out, number := map[string]string{}, 0
	for text != "" {
		number++
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimLeft(line, " \t")
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		fail := func(why string) (map[string]string, error) {
			return nil, fmt.Errorf("line %d: %s", number, why)
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimLeft(value, " \t")
		quoted, opened := strings.CutPrefix(value, "'")
		if !ok || name == "" || strings.ContainsAny(name, " \t'\"") || !opened {
			return fail("it is not NAME='value'")
		}
		value, rest, closed := strings.Cut(quoted, "'")
		if !closed {
			var more string
			if more, text, closed = strings.Cut(text, "'"); !closed {
				return fail("the value has no closing quote")
			}
			number += 1 + strings.Count(more, "\n")
			value = quoted + "\n" + more
			rest, text, _ = strings.Cut(text, "\n")
		}
		if strings.TrimSpace(rest) != "" {
			return fail("after the closing quote nothing may stand")
		}
		out[name] = value
	}
	return out, nil
}
