package cri

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Expand replaces $(NAME) by lookup(NAME) in text and $$ by a single $. A name that lookup
// does not know stays as written, and so does a $( that is never closed; missing lists the unknown
// names in order.
func Expand(text string, lookup func(string) (string, bool)) (out string, missing []string) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), missing
		}
		text = after
		switch {
		case strings.HasPrefix(text, "$"):
			b.WriteByte('$')
			text = text[1:]
		case strings.HasPrefix(text, "("):
			name, rest, closed := strings.Cut(text[1:], ")")
			if !closed {
				b.WriteByte('$')
				continue
			}
			text = rest
			if value, ok := lookup(name); ok {
				b.WriteString(value)
				continue
			}
			missing = append(missing, name)
			b.WriteString("$(" + name + ")")
		default:
			b.WriteByte('$')
		}
	}
}

// LookupIn finds a name in envs; as in a process's environment, the last of several wins.
func LookupIn(envs []*runtimeapi.KeyValue) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, env := range slices.Backward(envs) {
			if env.Key == name {
				return string(env.Value), true
			}
		}
		return "", false
	}
}

// Env is a container's environment in the order the runtime gets it: what device plugins answered,
// then the spec's variables as written. A spec variable sees those before it.
// It returns a *StartError when a variable cannot be resolved.
func Env(
	pod *v1.Pod, container *v1.Container, facts Facts,
	devices []*v1beta1.ContainerAllocateResponse,
) ([]*runtimeapi.KeyValue, error) {
	if err := checkEnvFrom(container); err != nil {
		return nil, ConfigError(err)
	}
	fromDevices := deviceSettings(devices).envs
	fromSpec := make([]*runtimeapi.KeyValue, 0, len(container.Env))
	for _, variable := range container.Env {
		value, err := facts.variable(pod, container, variable, LookupIn(fromSpec))
		if err != nil {
			return nil, ConfigError(fmt.Errorf("container %q: environment variable %q: %w",
				container.Name, variable.Name, err))
		}
		fromSpec = append(fromSpec, keyValue(variable.Name, value))
	}
	return append(fromDevices, fromSpec...), nil
}

// checkEnvFrom refuses whole config maps and secrets as environment.
func checkEnvFrom(container *v1.Container) error {
	for _, from := range container.EnvFrom {
		kind, name := "", ""
		switch {
		case from.ConfigMapRef != nil:
			kind, name = "config map", from.ConfigMapRef.Name
		case from.SecretRef != nil:
			kind, name = "secret", from.SecretRef.Name
		default:
			continue
		}
		return fmt.Errorf("container %q: envFrom: %w", container.Name, objectError(kind, name))
	}
	return nil
}

// variable is a variable's value; known finds the variables defined before it.
func (f Facts) variable(
	pod *v1.Pod, container *v1.Container, variable v1.EnvVar, known func(string) (string, bool),
) (string, error) {
	from := variable.ValueFrom
	switch {
	case from == nil || variable.Value != "":
		value, _ := Expand(variable.Value, known)
		return value, nil
	case from.FieldRef != nil:
		return f.field(pod, from.FieldRef)
	case from.ResourceFieldRef != nil:
		return f.resource(pod, container, from.ResourceFieldRef)
	case from.ConfigMapKeyRef != nil:
		return "", objectError("config map", from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return "", objectError("secret", from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return "", fmt.Errorf("fileKeyRef is not supported; write the value in the manifest")
	default:
		return "", nil
	}
}

func objectError(kind, name string) error {
	return fmt.Errorf("%s %q cannot be read without an API server; "+
		"write the value in the manifest or mount a file with hostPath", kind, name)
}

func keyValue(key, value string) *runtimeapi.KeyValue {
	return &runtimeapi.KeyValue{Key: key, Value: []byte(value)}
}
