package config

import (
	"reflect"

	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// noFileBase holds the defaults that differ without a configuration file: the kubelet's defaults
// for flags. Drop-ins and flags are applied on top of it.
const noFileBase = `{
	"authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
	"authorization": {"mode": "AlwaysAllow"},
	"readOnlyPort": 10255
}`

// applyDefaults sets every field that is not set. It is idempotent.
func applyDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	c.APIVersion, c.Kind = apiVersion, kind
	if c.NodeStatusReportFrequency.Duration == 0 { // the default is the update frequency
		c.NodeStatusReportFrequency = c.NodeStatusUpdateFrequency
	}
	if c.SerializeImagePulls == nil {
		c.SerializeImagePulls = ptr.To(ptr.Deref(c.MaxParallelImagePulls, 0) < 2)
	}
	known := defaults()
	usual := known.DeepCopy() // c gets maps and pointers of its own
	fill(reflect.ValueOf(c).Elem(), reflect.ValueOf(usual).Elem())
	if c.UserNamespaces.IDsPerPod == nil {
		c.UserNamespaces.IDsPerPod = usual.UserNamespaces.IDsPerPod
	}
	if *c.MergeDefaultEvictionSettings {
		for signal, value := range usual.EvictionHard {
			if _, ok := c.EvictionHard[signal]; !ok {
				c.EvictionHard[signal] = value
			}
		}
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// fill sets fields with zero values to usual, recursively in structs. Empty lists, empty maps and
// pointers to zero values were set on purpose and stay.
func fill(field, usual reflect.Value) {
	switch {
	case usual.IsZero():
	case field.IsZero():
		field.Set(usual)
	case field.Kind() == reflect.Struct:
		for i := range field.NumField() {
			fill(field.Field(i), usual.Field(i))
		}
	}
}
