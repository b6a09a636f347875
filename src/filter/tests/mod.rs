//! Filters by pyarrow and by hand, with the rows that pass by pyarrow's word
//! (`tests/filters/generate.py`).

mod building;
mod golden;
mod hostile;
mod messages;
mod rows;
