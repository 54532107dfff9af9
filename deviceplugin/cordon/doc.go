// Package cordon remembers which devices are not to be given to new containers. People cordon devices;
// plugins do not hear of it. A cordon outlives the agent, the plugin and the device: a device that comes
// back under its id is still cordoned.
package cordon
