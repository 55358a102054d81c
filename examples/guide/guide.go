// Package guide is the code of docs/guide.md, one file for each chapter, with a test for each that
// runs it. It is a shop: it sells furniture, has large purchases approved, sends parcels, and
// counts what its customers have. What a chapter teaches stands there; here is what makes it run.
//
// The chapter that begins the guide is examples/hello, which is a program of its own.
package guide
