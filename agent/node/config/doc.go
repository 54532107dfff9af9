// Package config turns the command line, the KubeletConfiguration file and its drop-ins into one
// checked Config.
//
// The order is, later wins: defaults, the file of --config, the drop-ins of --config-dir in the
// lexical order of their paths (RFC 7386 merge), flags. Feature gates are merged key by key.
// Without --config the security settings and the read-only port have the kubelet's older defaults,
// as with the kubelet.
//
// The fields and their meaning are those of kubelet.config.k8s.io/v1beta1:
// https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/
package config
