// Package claim has what a pod uses of ResourceClaims, as values.
package claim
