package cri

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// MaxArguments bounds the bytes of a container's environment and command line together, counted as
	// execve(2) does: each text with its terminator and a pointer to it. Linux allows about as much,
	// depending on the stack limit.
	MaxArguments = 1 << 20
	// MaxPath is the longest path in Linux in bytes (PATH_MAX).
	MaxPath = 4096
)

const argumentsBound = "the environment and the command line are larger than 1 MiB together; " +
	"make them shorter, or put the data in a file"

// TooLongError names the field of a container that is too long to start it.
type TooLongError struct {
	Field string // below the container: "env[3]", "args[0]"
	Why   string
}

func (e *TooLongError) Error() string { return e.Field + ": " + e.Why }

// room is the unused part of MaxArguments, in bytes.
type room int

// take charges a text of that many bytes and reports whether it fits.
func (r *room) take(text int) bool {
	const endAndPointer = 1 + 8
	*r -= room(text + endAndPointer)
	return *r >= 0
}

// errNoRoom reports that a text would exceed its scope's bound.
var errNoRoom = errors.New("the expanded text is too long")

// scope holds the values for $(NAME), and the bound of an expanded text in bytes.
type scope struct {
	known map[string]string
	most  int
}

// expand replaces $(NAME) by the value of NAME, and $$ by a single $. An unknown name and an
// unclosed $( stay as written; missing lists the unknown names in order. It never builds more than
// the scope's bound: the error is then errNoRoom.
func (s scope) expand(text string) (out string, missing []string, err error) {
	var b strings.Builder
	open := len(text) - (strings.LastIndexByte(text, ')') + 1)
	for {
		before, after, found := strings.Cut(text, "$")
		if b.Len()+len(before) > s.most {
			return "", nil, errNoRoom
		}
		b.WriteString(before)
		if !found {
			return b.String(), missing, nil
		}
		value, rest, unknown := s.reference(after, open)
		if b.Len()+len(value) > s.most {
			return "", nil, errNoRoom
		}
		b.WriteString(value)
		text = rest
		if unknown != nil {
			missing = append(missing, *unknown)
		}
	}
}

// reference reads the text after a $. It returns the replacement, the rest, and the name if it is
// unknown. The last open bytes hold no closing parenthesis, so they are not searched again for each
// $(.
func (s scope) reference(after string, open int) (value, rest string, unknown *string) {
	switch {
	case strings.HasPrefix(after, "$"):
		return "$", after[1:], nil
	case !strings.HasPrefix(after, "(") || len(after) <= open:
		return "$", after, nil
	}
	name, rest, _ := strings.Cut(after[1:], ")")
	if value, ok := s.known[name]; ok {
		return value, rest, nil
	}
	return "$" + after[:len(name)+len("()")], rest, &name
}

// commandLine expands command and arguments with the whole environment.
func commandLine(container *v1.Container, envs []*runtimeapi.KeyValue, left room) (
	command, args []string, err error) {
	known := valuesOf(envs)
	expand := func(field string, list []string) (out []string, err error) {
		for i, text := range list {
			value, _, err := scope{known, int(left)}.expand(text)
			if err != nil || !left.take(len(value)) {
				return nil, &TooLongError{Field: fmt.Sprintf("%s[%d]", field, i),
					Why: "with it " + argumentsBound}
			}
			out = append(out, value)
		}
		return out, nil
	}
	if command, err = expand("command", container.Command); err != nil {
		return nil, nil, err
	}
	args, err = expand("args", container.Args)
	return command, args, err
}

// StaticCommand expands the command of a container's probe with the variables whose values stand in
// the spec: the command must not change while the container runs.
func StaticCommand(container *v1.Container, command []string) ([]string, error) {
	var envs []*runtimeapi.KeyValue
	for _, e := range container.Env {
		envs = append(envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	out, _, err := commandLine(&v1.Container{Command: command}, envs, MaxArguments)
	return out, err
}

// valuesOf maps names to values. As in a process's environment, the last of several wins.
func valuesOf(envs []*runtimeapi.KeyValue) map[string]string {
	values := make(map[string]string, len(envs))
	for _, env := range envs {
		values[env.Key] = string(env.Value)
	}
	return values
}

// SubPathIn returns a function that expands subPathExpr with a container's environment.
func SubPathIn(envs []*runtimeapi.KeyValue) func(expr string) (string, error) {
	known := scope{valuesOf(envs), MaxPath}
	return func(expr string) (string, error) {
		path, missing, err := known.expand(expr)
		switch {
		case err != nil:
			return "", fmt.Errorf("subPathExpr becomes longer than the %d bytes of a path: %w",
				MaxPath, err)
		case len(missing) > 0:
			return "", fmt.Errorf("subPathExpr %q: the container has no environment variable %q",
				expr, missing[0])
		case path == "":
			return "", fmt.Errorf("subPathExpr %q is empty after expansion", expr)
		}
		return path, nil
	}
}

// CheckLength returns the *TooLongError that the container's start would fail with, if the spec
// alone determines it. It is nil if that depends on the pod's addresses, the node's resources or
// the answers of device plugins.
func CheckLength(pod *v1.Pod, container *v1.Container, facts Facts) *TooLongError {
	envs, left, err := environment(pod, container, ContainerOptions{Facts: facts})
	if err == nil {
		_, _, err = commandLine(container, envs, left)
	}
	var long *TooLongError
	if errors.As(err, &long) || err != nil {
		return long
	}
	expand := SubPathIn(envs)
	for i, m := range container.VolumeMounts {
		if _, err := expand(m.SubPathExpr); errors.Is(err, errNoRoom) {
			return &TooLongError{Field: fmt.Sprintf("volumeMounts[%d].subPathExpr", i),
				Why: fmt.Sprintf("becomes longer than the %d bytes of a path", MaxPath)}
		}
	}
	return nil
}
