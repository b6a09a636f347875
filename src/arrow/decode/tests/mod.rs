mod support;

mod bounds;
mod budget;
mod dictionaries;
mod golden;
mod hostile;
mod release;
mod reuse;
mod schemas;
mod types;
mod values;
mod wrong;
