// Package serve is what every device plugin of ours needs of the device plugin API (v1beta1): a
// socket in the device manager's directory, registration whenever kubelet.sock is made anew, and a
// list of devices that goes to everybody who watches it when it changes. What devices are, and what
// containers get with them, is the plugin's.
package serve
