package cri

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// MaxArguments is how many bytes a container's environment and command line take at most
	// together, counted as execve(2) counts them: each text with its end and a pointer to it. Linux
	// takes about as much, depending on the limit of the stack.
	MaxArguments = 1 << 20
	// MaxPath is how many bytes a path has at most in Linux (PATH_MAX).
	MaxPath = 4096
)

const argumentsBound = "the environment and the command line are larger than 1 MiB together; " +
	"make them shorter, or put the data in a file"

// TooLongError says which field of a container asks for more than can be started.
type TooLongError struct {
	Field string // below the container: "env[3]", "args[0]"
	Why   string
}

func (e *TooLongError) Error() string { return e.Field + ": " + e.Why }

// room is how much of MaxArguments is left.
type room int

// take reports whether a text of that many bytes finds room.
func (r *room) take(text int) bool {
	const endAndPointer = 1 + 8
	*r -= room(text + endAndPointer)
	return *r >= 0
}

// errNoRoom: a text becomes longer than its scope lets it.
var errNoRoom = errors.New("the expanded text is too long")

// scope is what $(NAME) may refer to, and how long a text becomes at most.
type scope struct {
	known map[string]string
	most  int
}

// expand replaces $(NAME) by the value of NAME in text and $$ by a single $. A name that is not
// known stays as written, and so does a $( that is never closed; missing lists the unknown
// names in order. More than what the scope allows is never built: then the error is errNoRoom.
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

// reference reads what follows a $: what stands for it, what comes after it, and the name if it is
// unknown. In the last open bytes nothing is closed: they are not searched for each $( again.
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

// commandLine expands command and arguments by the whole environment.
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

// StaticCommand expands the command of a probe of the container by those of its variables that have
// their value in the spec: what a probe runs with must not change while the container runs.
func StaticCommand(container *v1.Container, command []string) ([]string, error) {
	var envs []*runtimeapi.KeyValue
	for _, e := range container.Env {
		envs = append(envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	out, _, err := commandLine(&v1.Container{Command: command}, envs, MaxArguments)
	return out, err
}

// valuesOf are those in envs by name; as in a process's environment, the last of several wins.
func valuesOf(envs []*runtimeapi.KeyValue) map[string]string {
	values := make(map[string]string, len(envs))
	for _, env := range envs {
		values[env.Key] = string(env.Value)
	}
	return values
}

// SubPathIn expands subPathExpr by a container's environment.
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

// CheckLength is the *TooLongError that the container would fail with at its start, as far as that
// is known without its place: nil, if only the addresses of the pod, the node's resources or what
// device plugins answer can tell.
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
