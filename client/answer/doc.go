// Package answer reads answers to a recipe: words as a person types them ([Parse]), lines
// and columns of files ([Lines], [Column]), and tables whose rows are records of the
// recipe's privacy unit ([Table]); and it makes some up for tests ([MadeUp]).
//
// It decides only which answer the words stand for. Whether that answer is in range is
// said by package client, which never repeats it; nor does any error here: a bad value is
// named by its place or its line.
package answer
