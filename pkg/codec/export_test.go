package codec

// IsBare is isBare, and SlowlyBare the same by encoding/json.
var IsBare = isBare

// SlowlyBare says by encoding/json what IsBare says.
func SlowlyBare(p []byte) bool { return isJSON(p) && standsAsItself(p) }
