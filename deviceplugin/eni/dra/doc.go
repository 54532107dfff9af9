// Package dra makes the plugin for network interfaces a driver of resource claims (Dynamic Resource
// Allocation).
//
//	eni.Plugin (Follow) --- offers: interfaces, under their resources, with their health
//	   |
//	moment --- the devices of a moment, as package dradriver publishes and hands them out
//	   |  Hand, Back
//	   v
//	eni.Plugin --- how interfaces were before claims had them, and bringing them back
//
// The claims on record say which interfaces are in use, in place of the agent's list of pods. Where
// an interface is decides what containers get: the container runtime moves it into the pod's first
// container that starts, and the claim's CDI spec says so only while the interface is on the host.
package dra
