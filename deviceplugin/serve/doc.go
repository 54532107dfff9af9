// Package serve holds what all our device plugins share of the device plugin API (v1beta1): a
// socket in the device manager's directory, registration whenever kubelet.sock is made anew, and a
// list of devices that is sent to all watchers when it changes. The plugin supplies the devices and
// what containers get with them.
package serve
