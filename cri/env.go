package cri

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Objects holds the API objects that a container's environment refers to.
type Objects struct {
	// ConfigMaps and Secrets are keyed by name. Objects that do not exist are missing.
	ConfigMaps map[string]*v1.ConfigMap
	Secrets    map[string]*v1.Secret
	// Services are the services that the pod gets variables for.
	Services []*v1.Service
}

// Env returns a container's environment in the order the runtime gets it: variables of device
// plugins, of services, of envFrom's config maps and secrets, then those of the spec as written. A
// later variable replaces an earlier one. A variable of the spec can refer to all earlier ones but
// those of device plugins. The error is a *StartError if a variable cannot be resolved or the whole
// is longer than MaxArguments.
func Env(
	pod *v1.Pod, container *v1.Container, o ContainerOptions,
) ([]*runtimeapi.KeyValue, error) {
	envs, _, err := environment(pod, container, o)
	if err != nil {
		return nil, containerError(container, err)
	}
	return envs, nil
}

// variables is an environment under construction.
type variables struct {
	list []*runtimeapi.KeyValue
	// known holds the variables that the spec's may refer to.
	known map[string]string
	left  room
}

func (v *variables) add(key, value string) bool {
	v.list = append(v.list, keyValue(key, value))
	return v.left.take(len(key) + len("=") + len(value))
}

// environment also returns the room left for the command line.
func environment(
	pod *v1.Pod, container *v1.Container, o ContainerOptions,
) (envs []*runtimeapi.KeyValue, left room, err error) {
	all := &variables{known: map[string]string{}, left: MaxArguments}
	for _, env := range deviceSettings(o.Devices).envs {
		if !all.add(env.Key, string(env.Value)) {
			return nil, 0, &TooLongError{Field: "env", Why: "what device plugins answered and " +
				argumentsBound}
		}
	}
	if err := all.addObjects(container, o.Objects); err != nil {
		return nil, 0, err
	}
	fields := o.Facts.Of(pod)
	for i, variable := range container.Env {
		if err := all.addVariable(fields, container, i, o); err != nil {
			if _, long := errors.AsType[*TooLongError](err); long {
				return nil, 0, err
			}
			return nil, 0, fmt.Errorf("environment variable %q: %w", variable.Name, err)
		}
	}
	return all.list, all.left, nil
}

// maxRead bounds the bytes of services and envFrom that are read for a container. It is larger than
// MaxArguments since only the last of several variables of one name takes up room.
const maxRead = 16 * MaxArguments

// addObjects adds the variables of services and of envFrom. Each is added once, with its last
// value. It stops at the first variable beyond the bounds.
func (v *variables) addObjects(container *v1.Container, o *Objects) error {
	var names []string
	var long error
	kept, read := v.left, room(maxRead)
	add := func(name, value string) {
		if long != nil {
			return
		}
		if was, twice := v.known[name]; twice {
			kept += room(len(was) - len(value))
		} else {
			names = append(names, name)
			kept.take(len(name) + len("=") + len(value))
		}
		if !read.take(len(name)+len(value)) || kept < 0 {
			long = &TooLongError{Field: "envFrom", Why: "with variable " + strconv.Quote(name) +
				" of a service or of envFrom " + argumentsBound}
			return
		}
		v.known[name] = value
	}
	if o != nil {
		for _, service := range o.Services {
			serviceVariables(service, add)
		}
	}
	for _, from := range container.EnvFrom {
		data, err := o.data(from)
		if err != nil {
			return fmt.Errorf("envFrom: %w", err)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			add(from.Prefix+key, data[key])
		}
		if long != nil {
			return long
		}
	}
	if long != nil {
		return long
	}
	for _, name := range names {
		v.add(name, v.known[name])
	}
	return nil
}

// addVariable adds a variable of the spec.
func (v *variables) addVariable(
	fields *Fields, container *v1.Container, index int, o ContainerOptions,
) error {
	variable := container.Env[index]
	value, is, err := o.variable(fields, container, variable, scope{v.known, int(v.left)})
	if err == nil && !is {
		return nil
	}
	if errors.Is(err, errNoRoom) || err == nil && !v.add(variable.Name, value) {
		return &TooLongError{Field: fmt.Sprintf("env[%d]", index),
			Why: fmt.Sprintf("with variable %q %s", variable.Name, argumentsBound)}
	}
	if err != nil {
		return err
	}
	v.known[variable.Name] = value
	return nil
}

// variable returns a variable's value, and whether it has one. before holds the earlier variables.
func (o ContainerOptions) variable(
	fields *Fields, container *v1.Container, variable v1.EnvVar, before scope,
) (value string, is bool, err error) {
	from, pod := variable.ValueFrom, fields.pod
	switch {
	case from == nil || variable.Value != "":
		value, _, err = before.expand(variable.Value)
		return value, true, err
	case from.FieldRef != nil:
		value, err = fields.Field(from.FieldRef)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = o.Facts.Resource(pod, container, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		return o.Objects.configMapKey(pod, from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return o.Objects.secretKey(pod, from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return o.fileKey(from.FileKeyRef)
	default:
		return "", true, nil
	}
}

func keyValue(key, value string) *runtimeapi.KeyValue {
	return &runtimeapi.KeyValue{Key: key, Value: []byte(value)}
}
