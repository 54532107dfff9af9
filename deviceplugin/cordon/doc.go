// Package cordon remembers which devices are not to be given to new containers. That is for people
// to say; plugins do not hear of it. What is remembered outlives the agent and the plugin, and the
// device too: one that comes back under its id is cordoned still.
package cordon
