// Package dra calls the node's drivers of Dynamic Resource Allocation (KEP-4381): the services
// DRAPlugin of k8s.io/kubelet/pkg/apis/dra, v1 and v1beta1.
package dra
