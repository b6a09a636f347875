mod support;
mod walk;

mod dictionaries;
mod golden;
mod hostile;
mod release;
mod schemas;
mod types;
mod wrong;
