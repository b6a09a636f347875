//! Filters made by pyarrow and by hand, with the rows that pass according to pyarrow
//! (`tests/filters/generate.py`).

mod building;
mod golden;
mod hostile;
mod messages;
mod rows;
