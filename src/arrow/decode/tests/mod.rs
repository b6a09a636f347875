mod support;

mod again;
mod budget;
mod dictionaries;
mod golden;
mod hostile;
mod release;
mod schemas;
mod types;
mod values;
mod wrong;
