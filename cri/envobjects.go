package cri

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// data returns the content of the object that envFrom names, by key. It is nil if that object is
// missing and optional.
func (o *Objects) data(from v1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		c, err := o.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if c == nil || err != nil {
			return nil, err
		}
		return c.Data, nil
	case from.SecretRef != nil:
		s, err := o.secret(from.SecretRef.Name, from.SecretRef.Optional)
		if s == nil || err != nil {
			return nil, err
		}
		out := make(map[string]string, len(s.Data))
		for key, bytes := range s.Data {
			out[key] = string(bytes)
		}
		return out, nil
	default:
		return nil, nil
	}
}

// configMap returns nil without an error if the object is missing and optional.
func (o *Objects) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	if o == nil {
		return nil, noServer("config map", name)
	}
	c, has := o.ConfigMaps[name]
	if !has && !ptr.Deref(optional, false) {
		return nil, &ObjectError{apierrors.NewNotFound(v1.Resource("configmap"), name)}
	}
	return c, nil
}

// secret returns nil without an error if the object is missing and optional.
func (o *Objects) secret(name string, optional *bool) (*v1.Secret, error) {
	if o == nil {
		return nil, noServer("secret", name)
	}
	s, has := o.Secrets[name]
	if !has && !ptr.Deref(optional, false) {
		return nil, &ObjectError{apierrors.NewNotFound(v1.Resource("secret"), name)}
	}
	return s, nil
}

func (o *Objects) configMapKey(
	pod *v1.Pod, ref *v1.ConfigMapKeySelector,
) (value string, is bool, err error) {
	c, err := o.configMap(ref.Name, ref.Optional)
	if c == nil || err != nil {
		return "", false, err
	}
	if value, is = c.Data[ref.Key]; !is && !ptr.Deref(ref.Optional, false) {
		err = &ObjectError{fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key,
			pod.Namespace, ref.Name)}
	}
	return value, is, err
}

func (o *Objects) secretKey(
	pod *v1.Pod, ref *v1.SecretKeySelector,
) (value string, is bool, err error) {
	s, err := o.secret(ref.Name, ref.Optional)
	if s == nil || err != nil {
		return "", false, err
	}
	bytes, is := s.Data[ref.Key]
	if !is && !ptr.Deref(ref.Optional, false) {
		err = &ObjectError{fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key,
			pod.Namespace, ref.Name)}
	}
	return string(bytes), is, err
}

func noServer(kind, name string) error {
	return fmt.Errorf("%s %q cannot be read without an API server; "+
		"write the value in the manifest or mount a file with hostPath", kind, name)
}

// serviceVariables adds the variables that tell containers the address of a service
// (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
func serviceVariables(s *v1.Service, add func(name, value string)) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	variable := func(name string) string {
		return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	}
	name := variable(s.Name)
	first := strconv.Itoa(int(s.Spec.Ports[0].Port))
	add(name+"_SERVICE_HOST", ip)
	add(name+"_SERVICE_PORT", first)
	for _, port := range s.Spec.Ports {
		if port.Name != "" {
			add(name+"_SERVICE_PORT_"+variable(port.Name), strconv.Itoa(int(port.Port)))
		}
	}
	for i, port := range s.Spec.Ports {
		number, protocol := strconv.Itoa(int(port.Port)), port.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		url := strings.ToLower(string(protocol)) + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			add(name+"_PORT", url)
		}
		link := name + "_PORT_" + number + "_" + strings.ToUpper(string(protocol))
		add(link, url)
		add(link+"_PROTO", strings.ToLower(string(protocol)))
		add(link+"_PORT", number)
		add(link+"_ADDR", ip)
	}
}
