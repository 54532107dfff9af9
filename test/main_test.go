package test

import (
	"testing"

	"github.com/numalet/numalet/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
