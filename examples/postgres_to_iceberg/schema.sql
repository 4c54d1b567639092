-- Accounts of a bank, and what pgbench does to them (changes.sql).
CREATE TABLE accounts (
    id bigint PRIMARY KEY,
    owner text NOT NULL,
    balance numeric(12, 2) NOT NULL,
    note text,
    touched timestamptz NOT NULL
);
-- Large values are kept apart, and come with changes of a row by its old one only: see docs/row_changes.md.
ALTER TABLE accounts ALTER COLUMN note SET STORAGE EXTERNAL;
ALTER TABLE accounts REPLICA IDENTITY FULL;
CREATE PUBLICATION calve FOR TABLE accounts;

INSERT INTO accounts SELECT i, 'owner ' || i, i * 1.25, repeat('n', i * 40), clock_timestamp() FROM generate_series(1, 100) i;

CREATE FUNCTION change(a bigint, b bigint, what int) RETURNS void AS $$
BEGIN
    IF what <= 4 THEN
        INSERT INTO accounts VALUES (a, 'owner ' || a, what, repeat('x', (b * 20)::int), clock_timestamp())
        ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + 1.25, touched = clock_timestamp();
    ELSIF what <= 6 THEN
        UPDATE accounts SET balance = balance - 0.75, touched = clock_timestamp() WHERE id BETWEEN a AND a + 3;
    ELSIF what = 7 THEN
        DELETE FROM accounts WHERE id = a;
    ELSIF what = 8 THEN  -- another key
        UPDATE accounts SET id = b, touched = clock_timestamp() WHERE id = a;
    ELSIF what = 9 THEN  -- deleted and there again in one transaction
        DELETE FROM accounts WHERE id = a;
        INSERT INTO accounts VALUES (a, 'again ' || a, 0, NULL, clock_timestamp());
    ELSE  -- nothing of this comes to be
        DELETE FROM accounts;
        RAISE unique_violation;
    END IF;
EXCEPTION WHEN unique_violation THEN
    NULL;
END
$$ LANGUAGE plpgsql;
