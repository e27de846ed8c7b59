// Package capture records a boot of the machine it runs on.
package capture
