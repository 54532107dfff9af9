package handlers

import "github.com/numalet/numalet/agent/placement/admission/decide"

// Shutdown refuses every pod while the machine goes down, critical ones too.
func Shutdown(a decide.Attempt) *decide.Refusal {
	if !a.State.ShuttingDown {
		return nil
	}
	return &decide.Refusal{Reason: "NodeShutdown",
		Message: "Pod was rejected as the node is shutting down."}
}
