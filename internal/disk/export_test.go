package disk

// ReadFileInto is for the tests of the package.
var ReadFileInto = readFileInto
