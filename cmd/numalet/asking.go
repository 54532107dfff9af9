package main

import "github.com/numalet/numalet/cmd/internal/ask"

// asked is the agent that a command asks, with the questions that several commands have.
type asked struct{ ask.Agent }
