package cri

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Env is a container's environment in the order the runtime gets it: what device plugins answered,
// then the spec's variables as written. A spec variable sees those before it.
// It returns a *StartError when a variable cannot be resolved, or when there is more of it than
// MaxArguments.
func Env(
	pod *v1.Pod, container *v1.Container, facts Facts,
	devices []*v1beta1.ContainerAllocateResponse,
) ([]*runtimeapi.KeyValue, error) {
	envs, _, err := environment(pod, container, facts, devices)
	if err != nil {
		return nil, containerError(container, err)
	}
	return envs, nil
}

// environment also returns the room that is left for the command line.
func environment(
	pod *v1.Pod, container *v1.Container, facts Facts,
	devices []*v1beta1.ContainerAllocateResponse,
) (envs []*runtimeapi.KeyValue, left room, err error) {
	if err := checkEnvFrom(container); err != nil {
		return nil, 0, err
	}
	left = MaxArguments
	envs = deviceSettings(devices).envs
	for _, env := range envs {
		if !left.take(len(env.Key) + len("=") + len(env.Value)) {
			return nil, 0, &TooLongError{Field: "env", Why: "what device plugins answered and " +
				argumentsBound}
		}
	}
	fromSpec := map[string]string{}
	known := func(name string) (string, bool) {
		value, ok := fromSpec[name]
		return value, ok
	}
	for i, variable := range container.Env {
		value, err := facts.variable(pod, container, variable, scope{known, int(left)})
		fits := left.take(len(variable.Name) + len("=") + len(value))
		if errors.Is(err, errNoRoom) || err == nil && !fits {
			return nil, 0, &TooLongError{Field: fmt.Sprintf("env[%d]", i),
				Why: fmt.Sprintf("with variable %q %s", variable.Name, argumentsBound)}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("environment variable %q: %w", variable.Name, err)
		}
		fromSpec[variable.Name] = value
		envs = append(envs, keyValue(variable.Name, value))
	}
	return envs, left, nil
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
		return fmt.Errorf("envFrom: %w", objectError(kind, name))
	}
	return nil
}

// variable is a variable's value; the scope has the variables defined before it.
func (f Facts) variable(
	pod *v1.Pod, container *v1.Container, variable v1.EnvVar, before scope,
) (string, error) {
	from := variable.ValueFrom
	switch {
	case from == nil || variable.Value != "":
		value, _, err := before.expand(variable.Value)
		return value, err
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
