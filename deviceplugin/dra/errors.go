package dra

import (
	"errors"
	"fmt"
)

// ErrNotRegistered tells a call to a driver without any plugin from other failures.
var ErrNotRegistered = errors.New("no plugin of the DRA driver is registered")

// notRegistered is ErrNotRegistered in the kubelet's words.
type notRegistered struct{ driver string }

func (e notRegistered) Error() string {
	if e.driver == "" {
		return "DRA driver name is empty"
	}
	return fmt.Sprintf("DRA driver %s is not registered", e.driver)
}

func (notRegistered) Is(target error) bool { return target == ErrNotRegistered }

// AnswerError says what is wrong with a driver's answer for a claim.
type AnswerError struct {
	Driver string
	Claim  Claim
	What   string
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the answer of DRA driver %s for ResourceClaim %s/%s cannot be used: %s",
		e.Driver, e.Claim.Namespace, e.Claim.Name, e.What)
}
