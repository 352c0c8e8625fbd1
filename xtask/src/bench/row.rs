//! What was measured: samples, what they are held against, and whether the goal was met.
//!
//! A row knows nothing of how it came about. `p99` is always the bad end: of times the slowest hundredth, of rates
//! the lowest.

use std::fmt::Write as _;

use serde::Serialize;

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, memory.
    Less,
    /// Rates.
    More,
}

/// Measurements of one thing.
#[derive(Clone, Debug)]
pub struct Samples {
    n: usize,
    /// The median.
    pub p50: f64,
    /// What only one in a hundred is worse than.
    pub p99: f64,
}

impl Samples {
    /// Of these values; none of no value.
    pub fn of(mut values: Vec<f64>, better: Better) -> Samples {
        values.sort_by(f64::total_cmp);
        if better == Better::More {
            values.reverse();
        }
        let at = |part: f64| {
            let rank = (part * values.len() as f64).ceil() as usize;
            values.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
        };
        Samples {
            n: values.len(),
            p50: at(0.50),
            p99: at(0.99),
        }
    }

    /// Already summed up by whoever measured.
    pub fn summed(n: usize, p50: f64, p99: f64) -> Samples {
        Samples { n, p50, p99 }
    }
}

/// The other side.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    name: &'static str,
    p50: f64,
    p99: Option<f64>,
    /// Not measured in this run: a figure that was written down when the other side was.
    recorded: bool,
}

impl Baseline {
    /// Measured in this run.
    pub fn live(name: &'static str, samples: &Samples) -> Baseline {
        Baseline {
            name,
            p50: samples.p50,
            p99: Some(samples.p99),
            recorded: false,
        }
    }

    /// Written down.
    pub fn recorded(name: &'static str, p50: f64, p99: Option<f64>) -> Baseline {
        Baseline {
            name,
            p50,
            p99,
            recorded: true,
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    name: String,
    unit: &'static str,
    n: usize,
    p50: f64,
    p99: f64,
    baseline: Option<Baseline>,
    /// `p50` over the baseline's.
    ratio: Option<f64>,
    goal: String,
    met: bool,
    /// How far the goal is used up: beyond 1 it is missed.
    #[serde(skip)]
    strain: f64,
}

impl Row {
    /// Without a goal yet, which counts as met.
    pub fn new(name: impl Into<String>, unit: &'static str, samples: &Samples) -> Row {
        Row {
            name: name.into(),
            unit,
            n: samples.n,
            p50: samples.p50,
            p99: samples.p99,
            baseline: None,
            ratio: None,
            goal: "none".to_owned(),
            met: true,
            strain: 0.0,
        }
    }

    /// Held against the other side.
    #[must_use]
    pub fn against(mut self, baseline: Baseline) -> Row {
        self.ratio = Some(self.p50 / baseline.p50);
        self.baseline = Some(baseline);
        self
    }

    /// Its `p50` over the baseline's, where there is one.
    pub fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    /// The goal in words, and every part of it as what was measured and its limit.
    #[must_use]
    pub fn goal(mut self, better: Better, words: &str, parts: &[(f64, f64)]) -> Row {
        self.goal = words.to_owned();
        self.strain = parts.iter().fold(0.0, |most: f64, (measured, limit)| {
            most.max(match better {
                Better::Less => measured / limit,
                Better::More => limit / measured,
            })
        });
        self.met = self.strain <= 1.0;
        self
    }
}

/// The rows of one benchmark; where they are several, or go by other names, after the worst of them under `name`.
pub fn with_worst(name: &str, cases: Vec<Row>) -> Vec<Row> {
    if let [only] = cases.as_slice()
        && only.name == name
    {
        return cases;
    }
    let worst = cases
        .iter()
        .max_by(|a, b| a.strain.total_cmp(&b.strain))
        .cloned();
    let mut rows: Vec<Row> = worst
        .map(|row| Row {
            name: name.to_owned(),
            ..row
        })
        .into_iter()
        .collect();
    rows.extend(cases);
    rows
}

/// A Markdown table.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| name | unit | n | p50 | p99 | against | p50 | p99 | ratio | goal | met |\n\
         | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | --- |\n",
    );
    for row in rows {
        let (against, p50, p99) = match &row.baseline {
            None => (String::new(), String::new(), String::new()),
            Some(b) => (
                format!("{}{}", b.name, if b.recorded { " (recorded)" } else { "" }),
                figure(b.p50),
                b.p99.map(figure).unwrap_or_default(),
            ),
        };
        let ratio = row.ratio.map(figure).unwrap_or_default();
        let met = if row.met { "yes" } else { "**no**" };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {against} | {p50} | {p99} | {ratio} | {} | {met} |",
            row.name,
            row.unit,
            row.n,
            figure(row.p50),
            figure(row.p99),
            row.goal,
        );
    }
    text
}

/// Three digits that matter, and no exponent.
fn figure(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let whole = value.abs().log10().floor() as i32 + 1;
    let decimals = usize::try_from(3 - whole).unwrap_or(0);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_bad_end_of_times_and_of_rates() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let times = Samples::of(values.clone(), Better::Less);
        assert_eq!((times.n, times.p50, times.p99), (200, 100.0, 198.0));
        let rates = Samples::of(values, Better::More);
        assert_eq!((rates.p50, rates.p99), (101.0, 3.0));
        assert_eq!(Samples::of(vec![7.0], Better::Less).p99, 7.0);
    }

    #[test]
    fn the_name_itself_is_the_worst_of_its_cases() {
        let samples = Samples::of(vec![10.0], Better::Less);
        let row = |name: &str, limit| {
            Row::new(name, "ms", &samples).goal(Better::Less, "less", &[(10.0, limit)])
        };
        let rows = with_worst(
            "x",
            vec![row("x-a", 20.0), row("x-b", 9.0), row("x-c", 11.0)],
        );
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.met))
            .collect();
        assert_eq!(
            told,
            [("x", false), ("x-a", true), ("x-b", false), ("x-c", true)]
        );
        assert_eq!(with_worst("x", vec![row("x", 20.0)]).len(), 1);
    }

    #[test]
    fn a_goal_is_met_when_every_part_of_it_is() {
        let samples = Samples::of(vec![10.0], Better::More);
        let row = Row::new("x", "1/s", &samples);
        assert!(
            row.clone()
                .goal(Better::More, "", &[(10.0, 8.0), (10.0, 10.0)])
                .met
        );
        assert!(!row.goal(Better::More, "", &[(10.0, 8.0), (10.0, 12.0)]).met);
    }

    #[test]
    fn figures_have_three_digits_that_matter() {
        let told: Vec<_> = [0.01234, 1.234, 12.34, 123.4, 12345.6].map(figure).into();
        assert_eq!(told, ["0.0123", "1.23", "12.3", "123", "12346"]);
    }
}
